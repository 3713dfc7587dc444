"""From a tape to the passes and back; plans of structures seen before."""

"""From a torch call to a node: dispatch, in-place writes, views, opaque calls."""

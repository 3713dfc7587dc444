"""The command line: demo, explain, verify, bench."""

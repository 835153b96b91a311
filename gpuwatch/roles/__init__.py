"""The long-running loops that wire sources to rules to sinks."""

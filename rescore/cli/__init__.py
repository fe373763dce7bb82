"""The commands of `rescore`, one file each: parse, call a workflow, write.  Knows all rooms, loaded when it runs."""

"""The commands of `asr`, one file each: parse, call one function, write.  Knows all rooms, loaded when it runs."""

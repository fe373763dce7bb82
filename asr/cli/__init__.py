"""The command `asr`."""

"""What the commands do, one file each, scoring with LMs included.  Knows formats, tuning and what is below."""

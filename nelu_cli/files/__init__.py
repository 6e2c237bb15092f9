"""Which files a command reads and writes."""

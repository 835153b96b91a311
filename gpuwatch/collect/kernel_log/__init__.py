"""XID, SXid and bus-loss records from /dev/kmsg or klogctl."""

"""What an XID means, and which XIDs a GPU has had."""

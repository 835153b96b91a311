"""What a site expects of its nodes, and how two nodes differ."""

"""What every command shares: options, session, documents, tables and errors. It imports no command."""

"""Nouns: frozen records without I/O, the vocabulary every other folder shares."""

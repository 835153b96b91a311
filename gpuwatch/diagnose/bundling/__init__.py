"""The support bundle: which files and facts go in, what is removed from them, and its verification."""

"""The support bundle: what is taken, what is left out of it, and that it is judged again alike."""

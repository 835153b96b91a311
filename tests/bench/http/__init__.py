"""The agent's web server under attack, before and after a change, in one run: `python -m tests.bench.http.attack`."""

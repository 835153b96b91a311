"""Grafana dashboards: their code, the files made from it, and a preview that needs no Grafana."""

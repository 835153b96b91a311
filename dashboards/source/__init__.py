"""The Grafana dashboards as tables of panels; `python -m dashboards.source` writes dashboards/*.json from them."""

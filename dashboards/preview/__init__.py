"""Draws the dashboards without a Grafana: the fleet's history, a real Prometheus, Grafana's own components, a browser.

It is for looking, and for the pictures in the documentation. That every query answers is tested elsewhere.
"""

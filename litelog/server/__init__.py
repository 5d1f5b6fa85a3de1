"""The daemon over HTTP: metrics, health, status, the sync barrier and a page."""

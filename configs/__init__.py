"""Settings, profiles, dashboards and alerts."""

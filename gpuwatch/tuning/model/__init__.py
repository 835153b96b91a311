"""The data types of tuning: orders, their values, the status."""

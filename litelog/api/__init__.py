"""What programs call: functions that put the library's parts together. ``import litelog`` offers them by name."""

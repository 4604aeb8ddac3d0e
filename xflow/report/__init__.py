"""What a run tells: the report, its tables and its page."""

"""Where objects are read and written: local folders and S3."""

"""Archives below a folder or an S3 prefix, loaded by their first request; the script of those without one."""

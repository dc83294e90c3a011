"""Workers that begin with everything imported: by gunicorn's master, or by the parent of many masters."""

"""What an endpoint is, as AWS's requests say it: files and calls become checked values."""

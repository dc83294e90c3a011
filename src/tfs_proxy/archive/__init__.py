"""model.tar.gz: fetch, extract safely, discover models and versions, read saved_model.pb."""

"""model.tar.gz: fetch, extract, search, read and write it; its start-up report and OpenAPI document."""

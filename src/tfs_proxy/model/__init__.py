"""Model archives: fetch, extract, search, read and write them; start-up report and OpenAPI document."""

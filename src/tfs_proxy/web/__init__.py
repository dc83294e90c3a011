"""HTTP in front: one small falcon resource per URL."""

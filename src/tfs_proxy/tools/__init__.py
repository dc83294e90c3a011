"""Tools for what comes before and after serving: pack, endpoint."""

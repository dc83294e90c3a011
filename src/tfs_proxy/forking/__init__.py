"""Forking workers from a process that has imported their modules: what supervisor and that process say."""

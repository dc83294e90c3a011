"""Servables as they come and go: found on disk, loaded, warmed up, unloaded."""

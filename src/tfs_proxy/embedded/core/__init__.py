"""Servables and the calls to them: values and functions that both of the embedded server's APIs share."""

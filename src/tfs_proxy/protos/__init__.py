"""TF Serving's messages without the tensorflow package, in a descriptor pool of their own."""

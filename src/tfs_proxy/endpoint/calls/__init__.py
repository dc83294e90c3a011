"""The calls that clients make, one module for each operation of AWS's API."""

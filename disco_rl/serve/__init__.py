"""Starts model servers for the Workers, watches over them and stops them."""

"""Connections to brokers: TLS, SASL, and tokens."""

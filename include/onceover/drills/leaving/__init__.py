"""Clients leave the source: writers are kept off and watched, consumers' last commits are waited for."""

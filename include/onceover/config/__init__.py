"""Flow files and client configuration: closed, checked early, without a secret in any text.

Nothing is read at import. A :class:`~onceover.config.flow.flowfile.Flow` never holds a secret: the
``client:`` values stay as written (``${NAME}``) and only
:func:`~onceover.config.clients.resolve.resolve_client` reads the environment, the Airflow Connection or the
client file, in the process that connects.
"""

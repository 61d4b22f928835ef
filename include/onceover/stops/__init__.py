"""Why a partition stops, waits or is asked about, and the requests that change it."""

"""Why a job is not visible."""

"""Why a job is not seen."""

"""What Airflow loads by itself: the commands, and the note at a run. No decisions here."""

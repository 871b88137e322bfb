"""What every runner promises."""

"""What a source tells while it grows: partition time, watermark, which are whole, their order; and what streaming jobs say."""

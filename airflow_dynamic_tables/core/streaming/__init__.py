"""What a source tells while it grows: time of its partitions, watermark, which are whole, in which order, which are told."""

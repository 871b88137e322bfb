"""Sources with a watermark, and the refreshes that read them."""

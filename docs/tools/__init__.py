"""What makes the documentation: drawings, the generated reference, and what the site needs while it is built."""

"""What a person looks at: charts in the terminal, pictures, pages."""

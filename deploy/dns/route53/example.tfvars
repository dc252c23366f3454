# terraform plan -var-file=example.tfvars
zone_id    = "Z0123456789EXAMPLE"
name       = "api.example.com"
check_name = "ready.example.com"

regions = {
  us-east  = { aws_region = "us-east-1", addresses = ["192.0.2.10", "192.0.2.11"] }
  eu-west  = { aws_region = "eu-west-1", addresses = ["198.51.100.10"] }
  ap-south = { aws_region = "ap-south-1", addresses = ["203.0.113.10"] }
}

//! A begin and a commit timestamp for each of some concurrent transactions, over one client:
//! `cargo run -p esker-client --example transactions -- http://127.0.0.1:8080`
#![allow(clippy::print_stdout)]

use std::error::Error;

use esker_client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut builder = Client::builder();
    for endpoint in std::env::args().skip(1) {
        builder = builder.endpoint(endpoint);
    }
    let client = builder.build()?;
    let transactions: Vec<_> = (1..=8)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let begin = client.timestamp().await?;
                // Reads as of `begin`, and locks what it writes.
                let commit = client.timestamp().await?;
                println!("transaction {number}: from {begin} to {commit}");
                Ok::<_, esker_client::Error>(())
            })
        })
        .collect();
    for transaction in transactions {
        transaction.await??;
    }
    println!("{:?}", client.stats());
    Ok(())
}
